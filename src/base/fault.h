/* Failure injection: every host allocation and every fallible Vulkan call asks here whether to
 * fail. Off by default, and then costs one load. Only tests arm it, one kind at a time, in one
 * thread. */
#ifndef TSR_BASE_FAULT_H
#define TSR_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tsr__fault_kind {
    TSR__FAULT_NONE,
    TSR__FAULT_ALLOC,
    TSR__FAULT_VULKAN,
    TSR__FAULT_IO /* system calls that write checkpoints; `code` is an errno */
} tsr__fault_kind;

/* The `nth` (from 0) event of `kind` from now on fails, once; `code` is what an injected Vulkan
 * call returns. */
void tsr__fault_arm(tsr__fault_kind kind, uint64_t nth, int code);
void tsr__fault_disarm(void);

/* The name of the site that failed since the last arm, or NULL when nothing has been reached yet.
 */
const char *tsr__fault_site(void);
int tsr__fault_code(void);

/* Asked by the sites themselves: true when this very event is to fail. */
bool tsr__fault_hit(tsr__fault_kind kind, const char *site);

#endif
