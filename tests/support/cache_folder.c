#include "support/cache_folder.h"

#include <stdio.h>
#include <stdlib.h>

#include "support/check_main.h"

char cache_folder[64];

void cache_folder_make(void)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    if (cache)
        setenv("MESA_SHADER_CACHE_DIR", cache, 0);
    snprintf(cache_folder, sizeof cache_folder, "/tmp/tessera-test-cache-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(cache_folder));
    setenv("XDG_CACHE_HOME", cache_folder, 1);
    unsetenv("TESSERA_TUNING");
}

void cache_folder_remove(void)
{
    tests_remove(cache_folder);
}
