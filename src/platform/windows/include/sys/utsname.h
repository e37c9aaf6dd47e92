/* Declares uname. */
#ifndef TSR_WINDOWS_SYS_UTSNAME_H
#define TSR_WINDOWS_SYS_UTSNAME_H

struct utsname {
    char sysname[16], release[64], machine[16];
};

int uname(struct utsname *out);

#endif
