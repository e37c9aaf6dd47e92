/* For tests that functions refuse NULL. */
#ifndef TESTS_SUPPORT_REFUSED_H
#define TESTS_SUPPORT_REFUSED_H

#include <stdint.h>
#include <string.h>

#include "support/check_main.h"

/* Checks that a call fails because of the NULL that the text names, and does not change `out`, a
 * struct of the caller's with all outputs of the call. */
#define REFUSED(call, text)                                                                        \
    do {                                                                                           \
        memset(&out, 0x5a, sizeof out);                                                            \
        ck_assert_error(call, TSR_ERR_INVALID, text " is NULL");                                   \
        for (size_t byte_ = 0; byte_ < sizeof out; byte_++)                                        \
            ck_assert_msg(((const uint8_t *)&out)[byte_] == 0x5a, "%s writes", #call);             \
    } while (0)

#endif
