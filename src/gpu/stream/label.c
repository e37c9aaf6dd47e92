/* Labels of commands (VK_EXT_debug_utils), which tools for debugging GPUs show, and with which the
 * tests' driver checks that commands access only what their lists of accesses declare
 * (tests/gpu/driver). */
#include <inttypes.h>
#include <stdio.h>

#include "gpu/stream/state.h"

/* Room for a name and TSR__ACCESS_MAX accesses. */
#define LABEL_BYTES 1024

void tsr__stream_label(const tsr_stream *stream, const char *name, const tsr__access *access,
                       int count)
{
    const PFN_vkCmdInsertDebugUtilsLabelEXT insert = stream->device->vk.CmdInsertDebugUtilsLabelEXT;
    if (!stream->device->instance->labels || !insert)
        return;
    char text[LABEL_BYTES];
    int used = snprintf(text, sizeof text, "%.100s", name);
    for (int i = 0; i < count && used > 0 && used < LABEL_BYTES; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, " %s %" PRIx64 "+%" PRIx64,
                         access[i].write ? "writes" : "reads",
                         access[i].buffer->address + access[i].begin_bytes,
                         access[i].end_bytes - access[i].begin_bytes);
    const VkDebugUtilsLabelEXT label = {
        .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_LABEL_EXT,
        .pLabelName = text,
    };
    insert(stream->open->commands, &label);
}
