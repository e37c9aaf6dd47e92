/* Declares the functions of <dlfcn.h>, which use LoadLibrary. */
#ifndef TSR_WINDOWS_DLFCN_H
#define TSR_WINDOWS_DLFCN_H

#define RTLD_NOW 0
#define RTLD_LOCAL 0

/* dlopen with a name without a folder searches the folders that LoadLibrary searches. */
void *dlopen(const char *name, int flags);
void *dlsym(void *library, const char *symbol);
char *dlerror(void);
int dlclose(void *library);

#endif
