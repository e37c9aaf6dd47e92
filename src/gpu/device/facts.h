/* Everything that is known of a physical device: what users see (tsr_device_info), and behind it
 * the lists that have functions of their own or that only the tool shows. This header contains no
 * Vulkan types. */
#ifndef TSR_GPU_DEVICE_FACTS_H
#define TSR_GPU_DEVICE_FACTS_H

#include "tessera/device.h"

#define TSR__NAME_SIZE 256
#define TSR__MAX_HEAPS 16
#define TSR__MAX_QUEUE_FAMILIES 16
#define TSR__MAX_COOPMAT_SHAPES 64
#define TSR__MAX_KNOWN_FAULTS 16

typedef struct tsr__queue_family_info {
    uint32_t count;
    bool graphics, compute, transfer;
    uint32_t timestamp_bits;
} tsr__queue_family_info;

/* A fault of the device's driver that is known from a public report, and what the library does
 * about it. With the environment variable TESSERA_KNOWN_FAULTS=0 the library does nothing. */
typedef struct tsr__fault_info {
    const char *name;        /* for example "amd-emulated-coopmat" */
    const char *description; /* what the driver does: a sentence without its subject */
    const char *effect;      /* what the library does: a sentence without a full stop */
    const char *source;      /* the report on GitHub: REPOSITORY#NUMBER; commas between several */
} tsr__fault_info;

/* Every tsr_device_info is the first member of this struct. After a copy, its strings must be
 * connected again. */
typedef struct tsr__device_facts {
    tsr_device_info info;
    /* the strings of `info` */
    char name[TSR__NAME_SIZE];
    char driver_name[TSR__NAME_SIZE];
    char driver_info[TSR__NAME_SIZE];
    char uuid_text[37];
    char unusable_reason[TSR__NAME_SIZE];

    tsr_heap_info heaps[TSR__MAX_HEAPS];
    tsr_coopmat_shape coopmats[TSR__MAX_COOPMAT_SHAPES];
    int queue_family_count;
    tsr__queue_family_info queue_families[TSR__MAX_QUEUE_FAMILIES];
    int compute_queue_family; /* the family of the queue that computes; -1: there is none */
    /* the family of a second queue, which does large uploads and downloads while the first one
     * computes; -1: there is one queue for both, or TESSERA_TRANSFER_QUEUE is 0 */
    int transfer_queue_family;
    int known_fault_count; /* the faults that the library works around on this device */
    tsr__fault_info known_faults[TSR__MAX_KNOWN_FAULTS];
} tsr__device_facts;

/* Points the strings of facts->info to those of `facts`. */
static inline void tsr__facts_connect(tsr__device_facts *facts)
{
    facts->info.name = facts->name;
    facts->info.driver_name = facts->driver_name;
    facts->info.driver_info = facts->driver_info;
    facts->info.uuid_text = facts->uuid_text;
    facts->info.unusable_reason = facts->unusable_reason;
}

/* Returns the facts that `info` is a part of. */
static inline const tsr__device_facts *tsr__facts_of(const tsr_device_info *info)
{
    return (const tsr__device_facts *)info;
}

#endif
