#include "gpu/device/attachment.h"

#include "base/error.h"
#include "gpu/device/device.h"

void tsr__attachments_init(tsr__attachments *attachments)
{
    pthread_mutex_init(&attachments->lock, NULL);
    atomic_init(&attachments->count, 0);
}

void *tsr__device_attachment(const tsr_device *device, const tsr__attachment_kind *kind)
{
    const tsr__attachments *all = &device->attachments;
    int count = atomic_load_explicit(&all->count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (all->entry[i].kind == kind)
            return all->entry[i].attachment;
    return NULL;
}

static tsr_status create(tsr_device *device, const tsr__attachment_kind *kind, void **out)
{
    tsr__attachments *all = &device->attachments;
    int count = atomic_load(&all->count);
    TSR__REQUIRE(count < TSR__MAX_ATTACHMENTS, "device: more than %d attachments",
                 TSR__MAX_ATTACHMENTS);
    TSR__TRY(kind->create(device, out));
    all->entry[count].kind = kind;
    all->entry[count].attachment = *out;
    atomic_store_explicit(&all->count, count + 1, memory_order_release);
    return TSR_OK;
}

tsr_status tsr__device_attach(tsr_device *device, const tsr__attachment_kind *kind, void **out)
{
    void *found = tsr__device_attachment(device, kind);
    tsr_status status = TSR_OK;
    if (!found) {
        pthread_mutex_lock(&device->attachments.lock);
        found = tsr__device_attachment(device, kind);
        if (!found)
            status = create(device, kind, &found);
        pthread_mutex_unlock(&device->attachments.lock);
    }
    if (status == TSR_OK)
        *out = found;
    return status;
}

void tsr__attachments_close(tsr_device *device)
{
    tsr__attachments *all = &device->attachments;
    int count = atomic_load_explicit(&all->count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (all->entry[i].kind->close)
            all->entry[i].kind->close(device, all->entry[i].attachment);
}

void tsr__attachments_destroy(tsr_device *device)
{
    tsr__attachments *all = &device->attachments;
    for (int i = atomic_load(&all->count); i-- > 0;)
        all->entry[i].kind->destroy(device, all->entry[i].attachment);
    pthread_mutex_destroy(&all->lock);
}
