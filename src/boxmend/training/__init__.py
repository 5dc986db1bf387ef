"""Training: the loop, its processes and checkpoints, and what a trained model predicts."""
