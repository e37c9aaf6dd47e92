#ifndef TESTS_SUPPORT_AT_END_H
#define TESTS_SUPPORT_AT_END_H

/* What the main() of check_main.c calls after the last test, or NULL. It is for programs that run
 * their tests in one process. A function of atexit() would be too late for Vulkan: a thread's own
 * variables are destroyed before, and the validation layers of Debian 13 have such variables. */
extern void (*tests_at_end)(void);

#endif
