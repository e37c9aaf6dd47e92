#include "tessera/base.h"

#include "tsr_config.h"

const char *tsr_version(void)
{
    return TSR__VERSION;
}
