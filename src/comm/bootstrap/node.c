/* Identifies the node of a process: the processes with which it can share memory. */
#include "comm/bootstrap/backend.h"

#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/environment.h"

static void add(crypto_generichash_state *hash, const void *bytes, size_t size)
{
    crypto_generichash_update(hash, (const unsigned char *)bytes, size);
}

/* Adds what identifies the running kernel. All containers on one kernel have the same value. */
static void add_kernel(crypto_generichash_state *hash)
{
    char text[256];
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, text, sizeof text);
    if (file >= 0)
        close(file);
    if (size <= 0) { /* if /proc is not available, uses the host name instead */
        memset(text, 0, sizeof text);
        gethostname(text, sizeof text - 1);
        size = (ssize_t)strlen(text);
    }
    add(hash, text, (size_t)size);
}

void tsr__bootstrap_node(uint8_t node[TSR__BOOTSTRAP_NODE_SIZE])
{
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, NULL, 0, TSR__BOOTSTRAP_NODE_SIZE);
    const char *name = tsr__env_text("TESSERA_NODE");
    if (name != NULL) {
        add(&hash, "name", 4);
        add(&hash, name, strlen(name));
    } else {
        static const char *const shared[] = {"/proc/self/ns/ipc", "/proc/self/ns/pid",
                                             "/proc/self/ns/net", "/dev/shm"};
        add_kernel(&hash);
        for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
            struct stat is;
            uint64_t id[2] = {0};
            if (stat(shared[i], &is) == 0) {
                id[0] = (uint64_t)is.st_dev;
                id[1] = (uint64_t)is.st_ino;
            }
            add(&hash, id, sizeof id);
        }
    }
    crypto_generichash_final(&hash, node, TSR__BOOTSTRAP_NODE_SIZE);
}
