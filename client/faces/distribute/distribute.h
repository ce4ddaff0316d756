// The door to tf.distribute's strategies, variables and resolvers: <tutti/faces/distribute.h> where
// it is installed.
#pragma once

#include "client/faces/distribute/kubernetes_resolver.h"
#include "client/faces/distribute/launch_resolver.h"
#include "client/faces/distribute/logical_devices.h"
#include "client/faces/distribute/simple_resolver.h"
#include "client/faces/distribute/slurm_resolver.h"
#include "client/faces/distribute/tf_config_resolver.h"
#include "client/faces/distribute/union_resolver.h"
#include "client/faces/distribute/variable.h"
