"""A folder that ``fxscope run`` puts first on PYTHONPATH; its sitecustomize attaches the recorder."""
