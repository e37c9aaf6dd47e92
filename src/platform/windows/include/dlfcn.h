/* <dlfcn.h> over LoadLibrary. */
#ifndef TSR_WINDOWS_DLFCN_H
#define TSR_WINDOWS_DLFCN_H

#define RTLD_NOW 0
#define RTLD_LOCAL 0

/* A name without a folder is searched for as Windows does. */
void *dlopen(const char *name, int flags);
void *dlsym(void *library, const char *symbol);
char *dlerror(void);
int dlclose(void *library);

#endif
