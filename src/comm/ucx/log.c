#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "comm/ucx/state.h"

static ucs_log_func_rc_t pass_on(const char *file, unsigned line, const char *function,
                                 ucs_log_level_t level, const ucs_log_component_config_t *component,
                                 const char *message, va_list arguments)
{
    char text[512];
    (void)line;
    (void)component;
    (void)file;
    if (vsnprintf(text, sizeof text, message, arguments) < 0)
        return UCS_LOG_FUNC_RC_STOP;
    /* What UCX calls an error is often just a peer that is gone, which is reported as such. */
    tsr__log(level <= UCS_LOG_LEVEL_WARN ? TSR_LOG_WARNING : TSR_LOG_DEBUG, "ucx: %s: %s", function,
             text);
    /* After a fatal one UCX aborts: that should be seen. */
    return level == UCS_LOG_LEVEL_FATAL ? UCS_LOG_FUNC_RC_CONTINUE : UCS_LOG_FUNC_RC_STOP;
}

void tsr__ucx_log_redirect(void)
{
    static bool is_redirected; /* by one thread: communicators are created by one at a time */
    if (is_redirected || getenv("UCX_LOG_LEVEL"))
        return;
    ucs_log_push_handler(pass_on);
    is_redirected = true;
}
