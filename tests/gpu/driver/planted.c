/* Makes one mistake that drivers for the CPU hide: planted MISTAKE. The exit status is 0 if the
 * results are those of the correct program, so planted.sh can show that the test driver's modes
 * notice the mistake, and that nothing else does.
 *
 * none     no mistake
 * hazard   no barrier between a command and one that reads its result
 * hidden   a command reads a tensor that it has not declared
 * beyond   a command writes the element after the last one
 * before   a command writes the element before the first one
 * barrier  no barrier between invocations of a workgroup */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "gpu/internal.h"
#include "gpu/stream/state.h"

static const uint32_t code[] =
#include "planted.inc"
    ;

/* Buffers do not fill their pages, so only one of their ends is next to a page that faults. */
enum { COUNT = 63 * 64 };

typedef struct push {
    uint64_t x, y;
    int32_t first, end;
} push;

#define NEED(call)                                                                                 \
    do {                                                                                           \
        if ((call) != TSR_OK) {                                                                    \
            fprintf(stderr, "%s\n", tsr_last_error());                                             \
            exit(2);                                                                               \
        }                                                                                          \
    } while (0)

static tsr_device *device;
static tsr_stream *stream;

static bool is(const char *mistake, const char *name)
{
    return strcmp(mistake, name) == 0;
}

/* y = the kernel of x, as tsr__stream_run records it. */
static void run(tsr__pipeline *pipeline, const tsr_tensor *x, const tsr_tensor *y, int first,
                int end, bool hidden, uint32_t independent_group)
{
    const push values = {tsr__tensor_address(x), tsr__tensor_address(y), first, end};
    tsr__dispatch dispatch = {
        .push = &values,
        .push_bytes = sizeof values,
        .groups = {COUNT / 64 + 1, 1, 1},
        .independent_group = independent_group,
        .access_count = hidden ? 1 : 2,
        .access = {tsr__write_of(y), tsr__read_of(x)},
    };
    NEED(tsr__stream_run(stream, pipeline, &dispatch));
}

static tsr__pipeline *pipeline_of(bool shared, bool barrier)
{
    const uint32_t spec[] = {shared, barrier};
    tsr__pipeline *out = NULL;
    NEED(tsr__pipeline_create(device, "planted", code, sizeof code, spec, 2, 0, &out));
    return out;
}

int main(int argc, char **argv)
{
    const char *mistake = argc == 2 ? argv[1] : "";
    const int64_t shape[] = {COUNT};
    tsr_tensor *x = NULL, *y = NULL, *z = NULL;
    uint32_t in[COUNT], out[COUNT] = {0};
    for (uint32_t i = 0; i < COUNT; i++)
        in[i] = 1000 * i;
    NEED(tsr_device_open(tsr_device_params(0), &device));
    NEED(tsr_stream_create(device, &stream));
    NEED(tsr_tensor_create(device, TSR_U32, 1, shape, &x));
    NEED(tsr_tensor_create(device, TSR_U32, 1, shape, &y));
    NEED(tsr_tensor_create(device, TSR_U32, 1, shape, &z));
    NEED(tsr_tensor_upload(stream, x, in, sizeof in));
    NEED(tsr_fill(stream, y, 0));
    NEED(tsr_fill(stream, z, 0));

    tsr__pipeline *plain = pipeline_of(false, true);
    tsr__pipeline *shared = pipeline_of(true, !is(mistake, "barrier"));
    const uint32_t group = is(mistake, "hazard") ? tsr__stream_new_independent_group(stream) : 0;
    const int first = is(mistake, "before") ? -1 : 0;
    run(plain, x, y, first, COUNT + is(mistake, "beyond"), is(mistake, "hidden"), group);
    run(plain, y, z, 0, COUNT, false, group);
    NEED(tsr_tensor_download(stream, z, out, sizeof out));
    bool right = true;
    for (uint32_t i = 0; i < COUNT; i++)
        right = right && out[i] == in[i] + 2;

    /* one workgroup less: this one has no bounds */
    const push values = {tsr__tensor_address(x), tsr__tensor_address(y), 0, COUNT};
    const tsr__dispatch dispatch = {
        .push = &values,
        .push_bytes = sizeof values,
        .groups = {COUNT / 64, 1, 1},
        .access_count = 2,
        .access = {tsr__write_of(y), tsr__read_of(x)},
    };
    NEED(tsr__stream_run(stream, shared, &dispatch));
    NEED(tsr_tensor_download(stream, y, out, sizeof out));
    for (uint32_t i = 0; i < COUNT; i++)
        right = right && out[i] == in[i % 64 < 16 ? i : i - 16] + 1;

    tsr__pipeline_release(plain);
    tsr__pipeline_release(shared);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&z);
    tsr_stream_destroy(&stream);
    tsr_device_close(&device);
    if (!right)
        fprintf(stderr, "the results are wrong\n");
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
