# A node class is imported by its name.
terraform import gpufleet_node_class.h100_mig h100-mig
