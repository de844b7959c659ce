"""Networks: their descriptions, parameters, cells and image inputs."""
