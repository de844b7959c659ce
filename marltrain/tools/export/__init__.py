"""Policies of agents as files that other programs run: ONNX, torch.export and TensorFlow's SavedModel."""
