"""GraphModule to GraphModule, one application at a time."""
