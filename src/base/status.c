#include "tessera/base.h"

const char *tsr_status_name(tsr_status status)
{
    switch (status) {
    case TSR_OK:
        return "TSR_OK";
    case TSR_ERR_INVALID:
        return "TSR_ERR_INVALID";
    case TSR_ERR_NO_MEMORY:
        return "TSR_ERR_NO_MEMORY";
    case TSR_ERR_DEVICE_MEMORY:
        return "TSR_ERR_DEVICE_MEMORY";
    case TSR_ERR_UNSUPPORTED:
        return "TSR_ERR_UNSUPPORTED";
    case TSR_ERR_NOT_FOUND:
        return "TSR_ERR_NOT_FOUND";
    case TSR_ERR_DEVICE_LOST:
        return "TSR_ERR_DEVICE_LOST";
    case TSR_ERR_DRIVER:
        return "TSR_ERR_DRIVER";
    case TSR_ERR_IO:
        return "TSR_ERR_IO";
    case TSR_ERR_OVERFLOW:
        return "TSR_ERR_OVERFLOW";
    case TSR_ERR_TIMEOUT:
        return "TSR_ERR_TIMEOUT";
    case TSR_ERR_PEER_LOST:
        return "TSR_ERR_PEER_LOST";
    }
    return "TSR_ERR_?"; /* the switch has no default, so that the compiler warns if a status is
                           missing */
}
