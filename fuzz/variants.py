"""The variants to fuzz: each command with each kind of its inputs."""

from variant import Variant

DATASETS = {
    "coco": ("in/coco", "coco", "coco/*.json"),
    "voc": ("in/voc", "voc", "voc/Annotations/*.xml voc/ImageSets/Main/*.txt"),
    "yolo": ("in/yolo/data.yaml", "yolo", "yolo/data.yaml yolo/labels/*.txt"),
}
EXPORTS = {
    "datumaro-yolo": "obj.data obj.names train.txt obj_train_data/*.txt",
    "datumaro-yolo-ultralytics": "data.yaml train.txt val.txt labels/*/*.txt",
    "fiftyone-voc": "labels/*.xml",
    "fiftyone-yolov4": "obj.names images.txt data/*.txt",
    "label-studio-coco": "result.json",
    "label-studio-voc": "Annotations/*.xml",
    "label-studio-yolo": "classes.txt labels/*.txt",
    "supervision-yolo": "data.yaml labels/*.txt",
}  # exports of annotation tools, and the patterns of their files that are mutated
FIXES = ("", "--drop-malformed", "--drop-malformed --no-open-images", "--drop-malformed --json")
IMAGES_AS = ("", "--images-as copy", "--images-as none", "--json")
AUDIT_FILES = "audit/fixes.parquet audit/*.json audit/verdicts.jsonl audit/finished"
RUN_FILES = "run/run.json run/settings.json run/metrics.jsonl run/ledger/*.parquet run/finished"
SMALL = "--epochs 1 --batch-size 8 --image-size 32"
QUICK = f"--detector tiny {SMALL}"


def _dataset_variants() -> list[Variant]:
    variants = []
    for name, (address, part, targets) in DATASETS.items():
        variants += [
            Variant(f"check-{name}", f"check {address} --jobs 1", part, targets),
            Variant(
                f"fix-{name}",
                f"check {address} --jobs 1 --fix --out out",
                part,
                targets,
                (*FIXES, *IMAGES_AS[1:], "--drop-malformed --polygons box"),
                reread="dataset",
            ),
            Variant(
                f"noise-{name}",
                f"noise {address} --labels symmetric:0.4 --boxes uniform:0.3 --out out",
                part,
                targets,
                (
                    *("", "--missing 0.2", "--spurious 0.2", "--duplicate 0.2", "--no-clip"),
                    *("--missing 0.2 --missing-order small", "--spurious 0.2 --spurious-at part"),
                    *("--gross-boxes 0.2", "--gross-boxes 0.2 --gross-noise gaussian:0.4"),
                ),
                "--seed --missing --spurious --duplicate --subset --gross-boxes",
                "noisy",
            ),
            Variant(
                f"folds-{name}",
                f"folds {address} --out out -k 2",
                part,
                targets,
                ("", "--group-by folder", "--group-by frames", "--group-by (a+)+$"),
                "--seed -k",
            ),
        ]
        for to in DATASETS:
            line = f"convert {address} --to {to} --out out --allow-lossy"
            kind = f"convert-{name}-{to}"
            variants.append(Variant(kind, line, part, targets, IMAGES_AS, reread="dataset"))
    return variants


def _export_variants() -> list[Variant]:
    variants = []
    for name, patterns in EXPORTS.items():
        address = f"in/exports/{name}"
        targets = " ".join(f"exports/{name}/{pattern}" for pattern in patterns.split())
        fix = f"check {address} --jobs 1 --fix --out out"
        format = name.split("-")[-1]
        convert = f"convert {address} --to {format} --out out"
        variants.append(
            Variant(f"fix-{name}", fix, "exports", targets, FIXES, reread="dataset", weight=4)
        )
        if format in DATASETS:
            variants.append(
                Variant(
                    f"copy-{name}",
                    convert,
                    "exports",
                    targets,
                    IMAGES_AS,
                    reread="dataset",
                    weight=4,
                )
            )
    return variants


def _prediction_variants() -> list[Variant]:
    variants = []
    kinds = {
        "json": ("in/found.json", "found.json", "found.json"),
        "csv": ("in/found.csv", "found.csv", "found.csv"),
        "parquet": ("in/found.parquet", "found.parquet", "found.parquet"),
        "labels": ("in/found-labels", "found-labels", "found-labels/*.txt"),
        "folds": ("in/folds", "folds", "folds/folds.json folds/fold-?/predictions.json"),
    }
    for name, (path, part, targets) in kinds.items():
        line = f"audit in/noisy --predictions {path} --out out"
        options = ("", "--unseen", "--json")
        variants.append(
            Variant(f"audit-{name}", line, f"noisy {part}", targets, options, "--probe", "audit")
        )
    line = "evaluate --predictions in/found.json --data in/coco:train"
    targets = "found.json coco/instances_train.json"
    variants.append(Variant("evaluate-json", line, "coco found.json", targets, ("", "--json")))
    return variants


OTHERS = [
    Variant("check-images", "check in/coco --jobs 1", "coco", "coco/images/*.png"),
    Variant(
        "convert-joined",
        "convert in/coco in/voc in/yolo --to coco --out out --allow-lossy",
        "coco voc yolo",
        "coco/*.json voc/Annotations/*.xml yolo/data.yaml yolo/labels/*.txt",
        IMAGES_AS,
        reread="dataset",
    ),
    Variant(
        "convert-polygons",
        "convert in/yolo --to coco --polygons box --out out",
        "yolo",
        "yolo/labels/*.txt",
        reread="dataset",
    ),
    Variant(
        "convert-outlines",
        "convert in/coco --to coco --polygons box --out out",
        "coco",
        "coco/*.json",
        IMAGES_AS,
        reread="dataset",
    ),
    Variant(
        "diff", "diff in/coco in/yolo", "coco yolo", "coco/*.json yolo/*", ("", "--all", "--json")
    ),
    Variant(
        "noise-matrix",
        "noise in/coco --labels matrix:in/matrix.json --out out",
        "coco matrix.json",
        "matrix.json",
        reread="noisy",
    ),
    Variant(
        "noise-matrix-csv",
        "noise in/coco --labels matrix:in/matrix.csv --out out",
        "coco matrix.csv",
        "matrix.csv",
        reread="noisy",
    ),
    Variant(
        "noise-detector",
        "noise in/coco:train --spurious 0.1 --predictions in/found.json --out out",
        "coco found.json",
        "found.json found.json coco/instances_train.json",
        (
            *("", "--look-alikes 0.2", "--look-alikes 0.2 --look-alike-pair moon/ring"),
            *("--spurious-at clutter", "--spurious-at clutter,part,random"),
        ),
        "--look-alikes --spurious --seed",
        "noisy",
    ),
    Variant(
        "audit-run",
        "audit in/run",
        "noisy run",
        RUN_FILES,
        may_change="run/fixes.parquet run/audit.json",
        weight=5,
    ),
    Variant(
        "apply",
        "apply in/audit --out out",
        "noisy audit",
        AUDIT_FILES,
        (
            "",
            "--precision 0.3",
            "--to voc --allow-lossy",
            "--to yolo --allow-lossy",
            "--only labels",
        ),
        "--precision --min-confidence",
        "mended",
        weight=20,
    ),
    Variant(
        "apply-voc",
        "apply in/audit-voc --precision 0.5 --out out",
        "noisy-voc audit-voc",
        "audit-voc/fixes.parquet noisy-voc/Annotations/*.xml",
        reread="mended",
    ),
    Variant(
        "apply-run",
        "apply in/run --out out",
        "noisy run",
        RUN_FILES,
        ("", "--discarded drop", "--discarded mark", "--only boxes"),
        "--min-confidence",
        "mended",
        weight=8,
    ),
    *(
        Variant(
            f"revert-{name}",
            f"revert in/{name}",
            name,
            f"{name}/patch.json {name}/patch.json {name}/patch.json {name}/changes.csv {files}",
            ("", "--json"),
            may_change=f"{name}/*",
        )
        for name, files in (
            ("mended", "mended/*.json"),
            ("mended-voc", "mended-voc/Annotations/*.xml"),
            ("mended-yolo", "mended-yolo/labels/*.txt mended-yolo/data.yaml"),
        )
    ),
    *(
        Variant(
            f"export-{to}",
            f"export in/audit --to {to} --out out",
            "noisy audit",
            f"{AUDIT_FILES} noisy/*.json",
            (
                "",
                "--changes",
                "--most 5",
                "--images-as copy --most 99",
                "--no-whole-images --most 9",
            ),
            "--most",
            "json files",
        )
        for to in ("label-studio", "cvat", "fiftyone", "coco")
    ),
    *(
        Variant(
            f"import-{name}",
            f"import in/audit in/{path}",
            f"noisy audit {path.partition('/')[0]}",
            f"{path} {path} {path.partition('/')[0]}/export.json",
            ("", "--json"),
            may_change="audit/verdicts.*",
        )
        for name, path in (
            ("label-studio", "label-studio/project.json"),
            ("cvat", "cvat/annotations.xml"),
            ("cvat-zip", "cvat/task.zip"),
        )
    ),
    Variant(
        "report",
        "report in/run",
        "noisy run",
        f"{RUN_FILES} noisy/*.json noisy/images/*.png",
        ("", "--embed", "--no-embed"),
        may_change="run/report* run/figures*",
        weight=5,
    ),
    Variant(
        "report-truth",
        "report in/audited-run --truth in/noisy/truth.parquet --baseline in/run",
        "noisy run audited-run",
        "noisy/truth.parquet noisy/noise.json audited-run/*.json audited-run/*.parquet",
        may_change="audited-run/report* audited-run/figures*",
        weight=5,
    ),
    Variant(
        "report-audit",
        "report in/audit",
        "noisy audit",
        f"{AUDIT_FILES} noisy/truth.parquet noisy/*.json noisy/images/*.png",
        ("", "--truth in/noisy/truth.parquet", "--embed", "--no-embed", "--json"),
        may_change="audit/report* audit/figures*",
    ),
    Variant(
        "review",
        "review in/audit --no-open",
        "noisy audit",
        f"{AUDIT_FILES} noisy/images/*.png",
        numbers="--port",
        may_change="audit/verdicts.*",
        weight=5,
    ),
    Variant(
        "evaluate-truth",
        "evaluate in/run --truth in/noisy",
        "noisy run",
        f"{RUN_FILES} noisy/truth.parquet noisy/truth.parquet noisy/noise.json noisy/*.json",
        ("", "--json"),
        may_change="run/mending.json",
    ),
    Variant(
        "evaluate-run",
        "evaluate in/run --data in/coco:val",
        "coco run",
        "run/run.json run/model.safetensors run/settings.json coco/instances_val.json "
        "coco/images/val/*.png",
        ("", "--detections-out out.json"),
        may_change="run/evaluation.json",
        weight=3,
        torch=True,
    ),
    Variant(
        "predict-model",
        "predict in/model.safetensors in/pictures --out out.json",
        "model.safetensors pictures",
        "model.safetensors",
        numbers="--score-threshold",
        reread="json",
        weight=6,
        torch=True,
    ),
    Variant(
        "predict-images",
        "predict in/run in/pictures --out out.json",
        "run pictures",
        "pictures/* run/run.json run/finished",
        reread="json",
        weight=6,
        torch=True,
    ),
    Variant(
        "bench-table",
        "bench table table1 --results in/results.jsonl",
        "results.jsonl",
        "results.jsonl",
        (
            *("", "--mixed", "--json", "--mixed --out out.html", "--mixed --out out.svg"),
            *("--mixed --out out.csv", "--mixed --out out.md", "--where settings.epochs=12"),
        ),
    ),
    Variant(
        "bench-cells",
        "bench cells table1 --scale voc320 --done in/results.jsonl --out in/bench",
        "results.jsonl",
        "results.jsonl",
        ("", "--json"),
    ),
    Variant(
        "bench-audit",
        "bench audit in/noisy --predictions in/found.json --truth in/noisy/truth.parquet",
        "noisy found.json",
        "noisy/truth.parquet noisy/truth.parquet found.json",
        ("", "--json", "--out out.json"),
        "--precision",
        weight=3,
    ),
    Variant(
        "bench-audit-corrected",
        "bench audit in/noisy --predictions in/found.json --truth in/coco:train",
        "noisy coco found.json",
        "noisy/*.json coco/instances_train.json found.json",
        ("", "--json", "--out out.json"),
        weight=3,
    ),
    Variant(
        "bench-audit-suite",
        "bench audit-suite in/coco:train --predictions in/found.json --regimes clean,pair-10 "
        "--seeds 1 --out in/suite",
        "coco found.json suite",
        "suite/clean-0.json suite/clean-0.json found.json coco/instances_train.json",
        ("", "--json", "--look-alike-pair moon/ring"),
        "--seeds --first-seed",
        may_change="suite/*",
        weight=3,
    ),
    Variant(
        "train-settings",
        f"train in/noisy --out out --settings in/settings.json --weights none {SMALL}",
        "noisy settings.json",
        "settings.json",
        reread="run",
        weight=3,
        torch=True,
    ),
    Variant(
        "train-toml",
        f"train in/noisy --out out --settings in/settings.toml --weights none {SMALL}",
        "noisy settings.toml",
        "settings.toml",
        reread="run",
        weight=3,
        torch=True,
    ),
    Variant(
        "train-data",
        f"train in/noisy --out out --weights none {QUICK}",
        "noisy",
        "noisy/*.json noisy/images/*.png",
        numbers="--seed --warm-up --mend.vote-min-iou",
        reread="run",
        weight=2,
        torch=True,
    ),
    Variant(
        "train-weights",
        f"train in/noisy --out out --weights in/model.safetensors {QUICK}",
        "noisy model.safetensors",
        "model.safetensors",
        reread="run",
        weight=2,
        torch=True,
    ),
    Variant(
        "resume",
        "train in/noisy --out in/half --resume --settings in/half/settings.json",
        "noisy half",
        "half/checkpoint.pt half/checkpoint.pt half/run.json half/metrics.jsonl half/ledger/*",
        may_change="half half/*",
        weight=2,
        torch=True,
    ),
    Variant(
        "synth",
        "synth --images 3 --size 32 --out out",
        "matrix.csv",
        "matrix.csv",
        ("", "--format voc", "--format yolo"),
        "--size --seed",
        "dataset",
        weight=2,
    ),
    Variant("quickstart", "quickstart --images 10 --out out", "matrix.csv", "matrix.csv", weight=1),
]
VARIANTS = {
    variant.name: variant
    for variant in (
        *_dataset_variants(),
        *_export_variants(),
        *_prediction_variants(),
        *OTHERS,
    )
}
