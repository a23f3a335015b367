#include "pmsis.h"
