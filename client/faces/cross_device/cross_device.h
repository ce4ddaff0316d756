// The door to tf.distribute's cross-device operations: <tutti/faces/cross_device.h> where it is
// installed.
#pragma once

#include "client/faces/cross_device/cross_device_ops.h"
