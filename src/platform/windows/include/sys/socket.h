/* Declares only the types that internal headers name. There are no functions, because communicators
 * of several processes do not exist on Windows. */
#ifndef TSR_WINDOWS_SYS_SOCKET_H
#define TSR_WINDOWS_SYS_SOCKET_H

typedef int socklen_t;
struct sockaddr_storage {
    _Alignas(8) unsigned char bytes[128];
};

#endif
