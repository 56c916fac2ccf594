"""The domain: what a GPU order is, what it grants, and where a virtual machine asks for GPUs. No I/O."""
