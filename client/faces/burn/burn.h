// The door to burn's collective API: <tutti/faces/burn.h> where it is installed.
#pragma once

#include "client/faces/burn/collective.h"
#include "client/faces/burn/collective_error.h"
