/* Failure injection for tests. Every host allocation, every fallible Vulkan call and every system
 * call that writes a checkpoint asks here whether to fail. It is off by default and then costs one
 * load. Only tests arm it: one kind at a time, in one thread. */
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

/* Makes the `nth` (from 0) event of `kind` from now on fail, once. `code` is the result that a
 * failing Vulkan call returns, or the errno of a failing system call. */
void tsr__fault_arm(tsr__fault_kind kind, uint64_t nth, int code);
void tsr__fault_disarm(void);

/* Returns the name of the site that has failed since the last arm, or NULL if none has. */
const char *tsr__fault_site(void);
int tsr__fault_code(void);

/* Returns true if this event must fail. The sites call it. */
bool tsr__fault_hit(tsr__fault_kind kind, const char *site);

#endif
