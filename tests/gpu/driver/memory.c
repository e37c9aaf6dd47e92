/* Device memory of this driver's own, which is memory of the process between pages that fault
 * (TEST_DRIVER_FENCE), and of which a command may access only what it has declared
 * (TEST_DRIVER_ACCESS). The device's addresses are those of the process on drivers for the CPU, so
 * an access outside faults at the instruction that makes it.
 *
 * The library must give each buffer memory of its own (TESSERA_SEPARATE_MEMORY) for fences, and
 * label its commands (TESSERA_LABELS) for the check of accesses. */
#define _GNU_SOURCE /* for REG_ERR and MAP_NORESERVE */

#include "state.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, MAX_REGIONS = 1 << 16, ALIGNMENT = 32 };

/* An allocation: a page that faults, `bytes` usable bytes (whole pages), and another such page. */
typedef struct region {
    uint8_t *usable; /* NULL: not in use */
    uint64_t bytes;
    uint64_t begin, end; /* the buffer's bytes of the usable ones */
    VkDeviceMemory memory;
} region;

/* Protects the table. The handler of faults reads it without the lock: the process ends then. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static region regions[MAX_REGIONS];
static size_t region_count;
static const char *current_label; /* of the command that runs, or NULL */

bool memory_is_checked(void)
{
    return environment_is("TEST_DRIVER_ACCESS", "1");
}

bool memory_is_own(void)
{
    return memory_is_checked() || getenv("TEST_DRIVER_FENCE");
}

/* Faults --------------------------------------------------------------------------------------- */

static uint64_t address_of(const uint8_t *pointer)
{
    return (uint64_t)(uintptr_t)pointer;
}

static const region *region_at(uint64_t address)
{
    for (size_t i = 0; i < region_count; i++)
        if (regions[i].usable && address >= address_of(regions[i].usable) - PAGE &&
            address < address_of(regions[i].usable) + regions[i].bytes + PAGE)
            return &regions[i];
    return NULL;
}

static const char *kind_of_access(const void *context)
{
#if defined(__x86_64__)
    const ucontext_t *at = context;
    return at->uc_mcontext.gregs[REG_ERR] & 2 ? "writes" : "reads";
#else
    (void)context;
    return "accesses";
#endif
}

/* Ends the process with a message if the fault is one of this driver's pages; otherwise the fault
 * happens again, with the default action. */
static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    const uint8_t *address = info->si_addr;
    const region *at = region_at(address_of(address));
    char text[1400];
    if (!at) {
        signal(signal_number, SIG_DFL);
        return;
    }
    const int64_t inside = address - (at->usable + at->begin);
    const int64_t size = (int64_t)(at->end - at->begin);
    const int length =
        snprintf(text, sizeof text,
                 "\ntest driver: a command %s byte %" PRId64 " of a buffer of %" PRId64
                 " bytes at %" PRIx64 "%s: %s\n",
                 kind_of_access(context), inside, size, address_of(at->usable + at->begin),
                 inside < 0 || inside >= size ? "" : ", which it has not declared",
                 current_label ? current_label : "(no label)");
    (void)!write(STDERR_FILENO, text, (size_t)length);
    _exit(EXIT_FAILURE);
}

static void catch_faults(void)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    action.sa_sigaction = on_fault;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

/* Allocations ---------------------------------------------------------------------------------- */

static void protect(uint8_t *from, uint64_t bytes, int protection)
{
    if (mprotect(from, bytes, protection) != 0)
        driver_fail("mprotect");
}

VkResult memory_allocate(device *of, const VkMemoryAllocateInfo *info,
                         const VkAllocationCallbacks *allocator, VkDeviceMemory *out)
{
    const uint64_t bytes = (info->allocationSize + PAGE - 1) / PAGE * PAGE;
    uint8_t *mapped = mmap(NULL, bytes + 2 * PAGE, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    catch_faults();
    /* what a buffer holds at first: floats that are no numbers */
    memset(mapped + PAGE, 0xff, bytes);
    const VkImportMemoryHostPointerInfoEXT import = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .pNext = info->pNext,
        .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
        .pHostPointer = mapped + PAGE,
    };
    VkMemoryAllocateInfo imported = *info;
    imported.pNext = &import;
    imported.allocationSize = bytes;
    const VkResult result = DEVICE_NEXT(of, AllocateMemory)(of->handle, &imported, allocator, out);
    if (result != VK_SUCCESS) {
        munmap(mapped, bytes + 2 * PAGE);
        return result;
    }
    protect(mapped, PAGE, PROT_NONE);
    protect(mapped + PAGE + bytes, PAGE, PROT_NONE);
    if (memory_is_checked())
        protect(mapped + PAGE, bytes, PROT_NONE);

    pthread_mutex_lock(&lock);
    size_t slot = 0;
    while (slot < region_count && regions[slot].usable)
        slot++;
    if (slot == MAX_REGIONS)
        driver_fail("more than %d allocations", MAX_REGIONS);
    regions[slot] = (region){.usable = mapped + PAGE, .bytes = bytes, .end = bytes, .memory = *out};
    region_count += slot == region_count;
    pthread_mutex_unlock(&lock);
    return VK_SUCCESS;
}

static region *region_of(VkDeviceMemory memory)
{
    for (size_t i = 0; i < region_count; i++)
        if (regions[i].usable && regions[i].memory == memory)
            return &regions[i];
    return NULL;
}

void memory_free(device *of, VkDeviceMemory memory, const VkAllocationCallbacks *allocator)
{
    DEVICE_NEXT(of, FreeMemory)(of->handle, memory, allocator);
    pthread_mutex_lock(&lock);
    region *freed = memory ? region_of(memory) : NULL;
    if (freed) {
        munmap(freed->usable - PAGE, freed->bytes + 2 * PAGE);
        freed->usable = NULL;
    }
    pthread_mutex_unlock(&lock);
}

/* The sizes of buffers. */
static struct {
    VkBuffer handle;
    VkDeviceSize size;
} buffers[MAX_REGIONS];

static size_t slot_of(VkBuffer handle)
{
    for (size_t i = 0; i < MAX_REGIONS; i++)
        if (buffers[i].handle == handle)
            return i;
    driver_fail("more than %d buffers, or an unknown one", MAX_REGIONS);
}

void memory_buffer_made(VkBuffer buffer, VkDeviceSize size)
{
    pthread_mutex_lock(&lock);
    const size_t slot = slot_of(VK_NULL_HANDLE);
    buffers[slot].handle = buffer;
    buffers[slot].size = size;
    pthread_mutex_unlock(&lock);
}

void memory_buffer_destroyed(VkBuffer buffer)
{
    pthread_mutex_lock(&lock);
    if (buffer)
        buffers[slot_of(buffer)].handle = VK_NULL_HANDLE;
    pthread_mutex_unlock(&lock);
}

/* Whether the next buffer ends at a page that faults, rather than starting at one. */
static bool fence_is_at_end(void)
{
    static uint32_t random;
    const char *fence = getenv("TEST_DRIVER_FENCE");
    if (!fence || fence[0] < '0' || fence[0] > '9')
        return environment_is("TEST_DRIVER_FENCE", "end");
    if (random == 0)
        random = (uint32_t)strtoul(fence, NULL, 10) * 2 + 1;
    random = random * 1664525u + 1013904223u;
    return random >> 31 != 0;
}

/* Buffers that end at a page that faults are moved to the end of the memory, up to ALIGNMENT − 1
 * bytes before that page. */
VkResult memory_bind(device *of, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize offset)
{
    pthread_mutex_lock(&lock);
    region *own = region_of(memory);
    if (own) {
        const uint64_t size = buffers[slot_of(buffer)].size;
        if (fence_is_at_end())
            offset = (own->bytes - size) / ALIGNMENT * ALIGNMENT;
        own->begin = offset;
        own->end = offset + size;
    }
    pthread_mutex_unlock(&lock);
    return DEVICE_NEXT(of, BindBufferMemory)(of->handle, buffer, memory, offset);
}

/* Accesses ------------------------------------------------------------------------------------- */

/* Sets the protection of the pages of all ranges in the label that follow `verb`. */
static void protect_ranges(const char *label, const char *verb, int protection)
{
    for (const char *at = strstr(label, verb); at; at = strstr(at, verb)) {
        uint64_t address, bytes;
        at += strlen(verb);
        if (sscanf(at, "%" SCNx64 "+%" SCNx64, &address, &bytes) != 2 || bytes == 0)
            continue;
        pthread_mutex_lock(&lock);
        const region *own = region_at(address);
        if (own) {
            const uint64_t from = (address - address_of(own->usable)) / PAGE * PAGE;
            const uint64_t end = address + bytes - address_of(own->usable);
            if (address < address_of(own->usable) || end > own->bytes)
                driver_fail("a range beyond the ends of its buffer is declared: %s", label);
            protect(own->usable + from, end - from, protection);
        }
        pthread_mutex_unlock(&lock);
    }
}

void memory_open(const char *label)
{
    current_label = label;
    if (!label)
        return;
    protect_ranges(label, " reads ", PROT_READ);
    protect_ranges(label, " writes ", PROT_READ | PROT_WRITE);
}

void memory_close(void)
{
    if (current_label) {
        protect_ranges(current_label, " reads ", PROT_NONE);
        protect_ranges(current_label, " writes ", PROT_NONE);
    }
    current_label = NULL;
}
