/* <langinfo.h> and the locale functions used with it. Texts are always UTF-8. */
#ifndef TSR_WINDOWS_LANGINFO_H
#define TSR_WINDOWS_LANGINFO_H

#include <locale.h>

typedef int locale_t;
#define LC_CTYPE_MASK 1
#define CODESET 0
#define newlocale(mask, name, base) ((void)(base), (locale_t)1)
#define freelocale(locale) ((void)(locale))
#define nl_langinfo_l(item, locale) ((void)(locale), "UTF-8")

#endif
