"""The files in which other libraries keep arrays: those of JAX, TensorFlow, Keras, PaddlePaddle, NumPy."""
