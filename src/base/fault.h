/* Injects failures in tests. Every host allocation, every Vulkan call that can fail and every
 * system call that writes a checkpoint asks tsr__fault_hit whether it must fail. Injection is off
 * by default, and a call then costs only one load from memory. Only tests switch it on ("arm" it),
 * for one kind of event at a time and from one thread. */
#ifndef TSR_BASE_FAULT_H
#define TSR_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tsr__fault_kind {
    TSR__FAULT_NONE,
    TSR__FAULT_ALLOC,
    TSR__FAULT_VULKAN,
    TSR__FAULT_IO /* system calls that write checkpoints; their `code` is an errno */
} tsr__fault_kind;

/* Makes one future event of `kind` fail: the next one for nth = 0, the one after it for nth = 1,
 * and so on. `code` is the result that a failing Vulkan call returns, or the errno of a failing
 * system call. */
void tsr__fault_arm(tsr__fault_kind kind, uint64_t nth, int code);
/* Makes the next event of `kind` at the place called `site` fail. `site` must stay valid. */
void tsr__fault_arm_at(tsr__fault_kind kind, const char *site, int code);
/* Makes the nth event of `kind` and all later ones fail, as they do when memory is exhausted. */
void tsr__fault_arm_from(tsr__fault_kind kind, uint64_t nth, int code);
void tsr__fault_disarm(void);

/* Returns the name of the place in the code at which the injected failure occurred since the last
 * tsr__fault_arm, the first one if there are several. Returns NULL if it has not occurred. */
const char *tsr__fault_site(void);
int tsr__fault_code(void);

/* Returns true if this event must fail. Every place at which a failure can be injected calls this
 * function with its name as `site`. */
bool tsr__fault_hit(tsr__fault_kind kind, const char *site);

#endif
