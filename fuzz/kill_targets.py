"""The commands that are killed, their inputs, and how they run again after a kill."""

from dataclasses import dataclass

TRAIN_OPTIONS = (
    "--detector tiny --weights none --epochs 2 --batch-size 4 --image-size 32 --log-every 1"
)
CELL_OPTIONS = (
    "--scale voc320 --only label40-box40-mend-0 --data in/coco:train --val in/coco:val "
    "--weights none --jobs 1 --set detector=tiny --set image_size=32 --set batch_size=8 "
    "--set epochs=1 --set optimisation.optimizer=adamw --set optimisation.lr=0.001 "
    "--set checkpoint_every=1"
)


@dataclass(frozen=True)
class Target:
    """A command to kill."""

    name: str
    line: str
    parts: str  # inputs, separated by spaces
    again: str = ""  # the line after a kill; by default the same
    makes: str = ""  # an empty folder that exists before the command
    is_resumable: bool = False  # whether `again` continues an unfinished output
    counters: str = ""  # values in the output that count runs
    varying_names: str = ""  # patterns of output files whose names differ in every run
    torch: bool = False
    weight: int = 10  # relative number of kills


DATASETS = {"coco": "in/coco", "voc": "in/voc", "yolo": "in/yolo"}
TABLE_OPTIONS = "--results in/results.jsonl --out out.svg --out out.csv"
APPLY_OPTIONS = "--precision 0.3 --out out"
TARGETS = [
    *(
        Target(f"convert-{to}{ending}", f"convert in/yolo --to {to} --out out", "yolo", makes=makes)
        for to in DATASETS
        for ending, makes in (("", ""), ("-into-empty", "out"))
    ),
    Target("convert-copied", "convert in/coco --to coco --images-as copy --out out", "coco"),
    Target("noise", "noise in/coco --labels symmetric:0.4 --out out", "coco"),
    Target("noise-into-empty", "noise in/voc --labels pair:0.4 --out out", "voc", makes="out"),
    Target("check-fix", "check in/yolo --jobs 1 --fix --out out", "yolo"),
    Target("folds", "folds in/coco -k 2 --out out", "coco"),
    Target("folds-into-empty", "folds in/coco -k 2 --out out", "coco", makes="out"),
    Target("apply", f"apply in/audit {APPLY_OPTIONS}", "noisy audit"),
    Target("apply-into-empty", f"apply in/audit {APPLY_OPTIONS}", "noisy audit", makes="out"),
    Target("apply-voc", f"apply in/audit-voc {APPLY_OPTIONS}", "noisy-voc audit-voc"),
    Target("revert", "revert in/mended", "mended"),
    Target("revert-voc", "revert in/mended-voc", "mended-voc"),
    Target("audit", "audit in/noisy --predictions in/found.json --out out", "noisy found.json"),
    Target(
        "audit-into-empty",
        "audit in/noisy --predictions in/found.json --out out",
        "noisy found.json",
        makes="out",
    ),
    Target("audit-run", "audit in/run", "noisy run"),
    Target("export", "export in/audit --to label-studio --most 9 --out out", "noisy audit"),
    Target(
        "export-into-empty",
        "export in/audit --to cvat --most 9 --images-as copy --out out",
        "noisy audit",
        makes="out",
    ),
    Target("import", "import in/audit in/label-studio/project.json", "noisy audit label-studio"),
    Target("report", "report in/run", "noisy run"),
    Target("report-out", "report in/run --out out.html --no-embed", "noisy run"),
    Target("report-audit", "report in/audit --truth in/noisy", "noisy audit"),
    Target("review", "review in/audit --no-open", "noisy audit"),
    Target("evaluate-truth", "evaluate in/run --truth in/noisy", "noisy run"),
    Target(
        "bench-table",
        f"bench table table1 {TABLE_OPTIONS}",
        "results.jsonl",
        again=f"bench table table1 {TABLE_OPTIONS} --overwrite",
    ),
    Target(
        "bench-audit-suite",
        "bench audit-suite in/coco:train --predictions in/found.json --regimes clean,pair-10 "
        "--seeds 1 --out out",
        "coco found.json",
        is_resumable=True,
        weight=5,
    ),
    Target("synth", "synth --images 5 --size 32 --out out", "results.jsonl"),
    Target(
        "synth-into-empty", "synth --images 5 --size 32 --out out", "results.jsonl", makes="out"
    ),
    Target(
        "quickstart",
        "quickstart --images 10 --out out",
        "results.jsonl",
        is_resumable=True,
        varying_names="out/audit/report-images/*.jpg",  # hashes of the time of the drawn images
        weight=3,
    ),
    Target("predict", "predict in/run in/pictures --out out.json", "run pictures", torch=True),
    Target(
        "evaluate-run",
        "evaluate in/run --data in/coco:val",
        "coco run",
        torch=True,
        weight=5,
    ),
    Target(
        "train",
        f"train in/noisy --out out {TRAIN_OPTIONS} --checkpoint-every 1",
        "noisy",
        again=f"train in/noisy --out out {TRAIN_OPTIONS} --checkpoint-every 1 --resume",
        is_resumable=True,
        torch=True,
    ),
    Target(
        "train-into-empty",
        f"train in/noisy --out out {TRAIN_OPTIONS} --val in/coco:val --keep-best",
        "noisy coco",
        again=f"train in/noisy --out out {TRAIN_OPTIONS} --val in/coco:val --keep-best --resume",
        makes="out",
        is_resumable=True,
        torch=True,
        weight=5,
    ),
    Target(
        "train-resume",
        "train in/noisy --out in/half --resume --settings in/half/settings.json",
        "noisy half",
        is_resumable=True,
        torch=True,
        weight=5,
    ),
    Target(
        "bench-run",
        f"bench run table1 --out out {CELL_OPTIONS}",
        "coco",
        # a full disk fails a cell
        again=f"bench run table1 --out out {CELL_OPTIONS} --retry-failed",
        is_resumable=True,
        counters="attempt number",
        torch=True,
        weight=1,
    ),
]
