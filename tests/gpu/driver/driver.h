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
 * it. TEST_DRIVER_DELAYS=1: some submissions are late by a random time. TEST_DRIVER_CPU=1: the
 * device says that it is a CPU, for which kernels with matrix units have smaller tiles, because
 * such drivers compile each fragment to hundreds of instructions.
 *
 * Drivers for the CPU run commands and invocations in order, so they hide mistakes that GPUs show.
 * These variables make such mistakes fail, whatever the order of the real driver:
 *
 * TEST_DRIVER_ORDER=reversed or a number: the commands between two barriers run in reverse, or in
 * an order that the number chooses. Shows barriers that are missing between commands.
 * TEST_DRIVER_ACCESS=1: each command runs alone, and may access only the bytes (in whole pages)
 * that its label declares. Needs TESSERA_LABELS=1. Shows what a command reads or writes and has not
 * declared, and would therefore lack a barrier.
 * TEST_DRIVER_FENCE=end, start or a number: device memory ends, or starts, next to a page that
 * faults; the number chooses for each buffer. Needs TESSERA_SEPARATE_MEMORY=1. Shows indices out of
 * range.
 * TEST_DRIVER_INVOCATIONS=1: the invocations of a workgroup, and the workgroups, have their numbers
 * in reverse. Shows barriers that are missing in a shader, and workgroups that depend on another.
 *
 * TEST_DRIVER_MODULES=folder: every shader module is written to the folder, which is made, as the
 * driver gets it and as this driver passes it on, for a validator.
 *
 * TEST_DRIVER_REMOVE="KERNEL FILE:LINE": the barrier at this line of a shader's source is removed
 * from the kernel, if the modules have line numbers. TEST_DRIVER_BARRIERS=file: a line of this form
 * is added for each barrier of each module. barriers.sh uses both.
 *
 * Commands and memory that break these rules end the process with a message that names the command.
 * With one of the memory variables, new device memory holds floats that are no numbers. */
#ifndef TSR_TESTS_GPU_DRIVER_H
#define TSR_TESTS_GPU_DRIVER_H

#include <stdbool.h>

/* The type of the function that the driver exports as `test_driver_hold`: while a queue family
 * is held, its queue starts no new submission. */
typedef void test_driver_hold_fn(unsigned family, bool hold);

#endif
