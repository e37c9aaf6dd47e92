/* Objects that higher folders keep for each device, for example memory, pipelines and tuning
 * tables. The device closes and destroys them through function pointers, so src/gpu/device/ does
 * not depend on those folders. */
#ifndef TSR_GPU_DEVICE_ATTACHMENT_H
#define TSR_GPU_DEVICE_ATTACHMENT_H

#include <pthread.h>
#include <stdatomic.h>

#include "tessera/device.h"

/* A kind of attachment. Each kind is a static constant in the file that owns it; its address is the
 * key with which the attachment is found. */
typedef struct tsr__attachment_kind {
    tsr_status (*create)(tsr_device *device, void **out);
    /* Called by tsr_device_close, for example to save files; may be NULL. Streams and buffers that
     * still have references to the device may use it afterwards. */
    void (*close)(tsr_device *device, void *attachment);
    /* Called when the device is destroyed, before its VkDevice is destroyed. */
    void (*destroy)(tsr_device *device, void *attachment);
} tsr__attachment_kind;

enum { TSR__MAX_ATTACHMENTS = 8 };

typedef struct tsr__attachments {
    pthread_mutex_t lock;
    atomic_int count;
    struct {
        const tsr__attachment_kind *kind;
        void *attachment;
        /* entries with indices below `count` do not change, so they can be read without the lock */
    } entry[TSR__MAX_ATTACHMENTS];
} tsr__attachments;

/* Returns the device's attachment of this kind, which the first call creates. Thread-safe. `create`
 * runs under a lock and must not call tsr__device_attach. */
tsr_status tsr__device_attach(tsr_device *device, const tsr__attachment_kind *kind,
                              void **out) TSR_NODISCARD;

/* Returns the device's attachment of this kind, or NULL if it has not been created yet. */
void *tsr__device_attachment(const tsr_device *device, const tsr__attachment_kind *kind);

/* The following functions are for device.c only. */
void tsr__attachments_init(tsr__attachments *attachments);
void tsr__attachments_close(tsr_device *device);
void tsr__attachments_destroy(tsr_device *device);

#endif
