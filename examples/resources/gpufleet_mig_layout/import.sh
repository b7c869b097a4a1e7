# A MIG layout is imported by its name.
terraform import gpufleet_mig_layout.small h100-7x1g10gb
