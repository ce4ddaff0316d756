"""The logical CPUs of the tests that compare with TensorFlow, which run in one process."""

import functools

import tensorflow as tf

COUNT = 8


@functools.cache
def logical_cpus():
    """Makes COUNT logical CPUs, once in a process and before TensorFlow runs anything; returns
    their names."""
    cpu, = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * COUNT)
    return [device.name for device in tf.config.list_logical_devices("CPU")]
