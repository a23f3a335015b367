"""What people and scripts are told about a compilation and a run."""
