"""Programs run with PyTorch; needs the extra ``torch``."""
