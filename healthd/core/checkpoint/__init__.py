"""What is known of a gang's checkpoints: verification, the pre-check, what a restart would cost."""
