#include "tanren/base/safetensors.h"
