"""The commands of the command line. Modules that load MLX are imported by the commands that need them."""
