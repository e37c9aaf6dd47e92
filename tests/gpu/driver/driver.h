/* A Vulkan driver that passes everything on to a driver for the CPU, but looks like a discrete GPU:
 * it has two queues in different families, and its memory is not unified. It is a driver and not a
 * layer so that the validation layer is always above it, whatever the loader's order.
 *
 * Each queue has a thread, which waits on the host for the semaphores of a submission before it
 * passes the submission on. No queue of the real driver ever waits for a later submission, and the
 * two queues run as independently as those of a GPU.
 *
 * Environment variables: TEST_DRIVER_OF is the path of the real driver's description.
 * TEST_DRIVER_SECOND is what the second family can do: "transfer" or "compute".
 * TEST_DRIVER_DIRECT=1: the host can write all device memory (resizable BAR); otherwise 256 MiB of
 * it. TEST_DRIVER_DELAYS=1: some submissions are late by a random time. */
#ifndef TSR_TESTS_GPU_DRIVER_H
#define TSR_TESTS_GPU_DRIVER_H

#include <stdbool.h>

/* The type of the function that the driver exports as `test_driver_hold`: while a queue family
 * is held, its queue starts no new submission. */
typedef void test_driver_hold_fn(unsigned family, bool hold);

#endif
