#define _GNU_SOURCE /* sched_getaffinity */
#include "comm/api/processors.h"

#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include "base/hash.h"

/* Returns a hash that identifies the running kernel, and so the machine; 0 if it is unknown. */
static uint64_t find_machine(void)
{
    char text[128];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!file)
        return 0;
    const size_t length = fread(text, 1, sizeof text, file);
    (void)fclose(file);
    return length > 0 ? tsr__hash(TSR__HASH_START, text, length) : 0;
}

static void add_bit(tsr__processors *processors, size_t processor)
{
    if (processor < (size_t)64 * TSR__PROCESSOR_WORDS)
        processors->bits[processor / 64] |= UINT64_C(1) << processor % 64;
}

tsr__processors tsr__processors_find(void)
{
    tsr__processors found = {.machine = find_machine()};
#ifdef __linux__
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
        for (size_t i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &allowed))
                add_bit(&found, i);
        return found;
    }
#endif
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    for (long i = 0; i < online; i++)
        add_bit(&found, (size_t)i);
    return found;
}

void tsr__sharing_add(tsr__sharing *sharing, const tsr__processors *of_rank)
{
    if (sharing->ranks > 0 && (of_rank->machine == 0 || of_rank->machine != sharing->all.machine))
        return;
    sharing->all.machine = of_rank->machine;
    for (int i = 0; i < TSR__PROCESSOR_WORDS; i++)
        sharing->all.bits[i] |= of_rank->bits[i];
    sharing->ranks++;
}

bool tsr__sharing_is_oversubscribed(const tsr__sharing *sharing)
{
    int processors = 0;
    for (int i = 0; i < TSR__PROCESSOR_WORDS; i++)
        processors += __builtin_popcountll(sharing->all.bits[i]);
    return sharing->ranks > processors;
}
