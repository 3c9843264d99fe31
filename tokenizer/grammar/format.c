/* SPDX-License-Identifier: MIT */
/* The formats that are regular expressions; see format.h. */
#include "tokenizer/grammar/format.h"

#include <string.h>

/* RFC 3339, with the lengths of months and leap years; years 0001 to 9999. */
#define YEAR "(?:000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})"
#define LEAP_YEAR "(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:" YEAR "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])"                                   \
    "|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))|" LEAP_YEAR "-02-29)"
#define TIME                                                                                       \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d+)?(?:[Zz]|[+-](?:[01]\\d|2[0-3]):[0-5]\\d)"
#define LEAP_TIME "(?:" TIME "|23:59:60(?:\\.\\d+)?(?:[Zz]|[+-]00:00))"

/* RFC 3339, appendix A */
#define DURATION_TIME "T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)"
#define DURATION                                                                                   \
    "P(?:(?:\\d+D|\\d+M(?:\\d+D)?|\\d+Y(?:\\d+M(?:\\d+D)?)?)(?:" DURATION_TIME ")?|" DURATION_TIME \
    "|\\d+W)"

#define OCTET "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 OCTET "(?:\\." OCTET "){3}"

/* RFC 4291: up to eight groups; "::" stands for at least one of them; IPv4 may be the last two. */
#define H16 "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32      \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16             \
    ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16       \
    ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16   \
    ")?::)"

/* RFC 1123 */
#define LABEL "[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?"
#define HOSTNAME LABEL "(?:\\." LABEL ")*"

/* RFC 5321, Mailbox; the local part has at most 64 bytes, so as many with pairs as surely fit */
#define ATOM "[0-9A-Za-z!#$%&'*+/=?^_`{|}~-]+"
#define QTEXT "[\\x20\\x21\\x23-\\x5B\\x5D-\\x7E]"
#define QUOTED "\"(?:" QTEXT "{0,62}|(?:" QTEXT "|\\\\[\\x20-\\x7E]){0,31})\""
#define SUB_DOMAIN "[0-9A-Za-z](?:[0-9A-Za-z-]*[0-9A-Za-z])?"
#define EMAIL                                                                                      \
    "(?=[^@\"]{1,64}@|\")(?:" ATOM "(?:\\." ATOM ")*|" QUOTED ")@(?:" SUB_DOMAIN                   \
    "(?:\\." SUB_DOMAIN ")*"                                                                       \
    "|\\[(?:" IPV4 "|[Ii][Pp][Vv]6:" IPV6 ")\\])"

/* RFC 3986 */
#define UNRESERVED "0-9A-Za-z._~\\-"
#define SUB_DELIMS "!$&'()*+,;="
#define PERCENT "%[0-9A-Fa-f]{2}"
#define PCHAR "(?:[" UNRESERVED SUB_DELIMS ":@]|" PERCENT ")"
#define PCHAR_NO_COLON "(?:[" UNRESERVED SUB_DELIMS "@]|" PERCENT ")"
#define USERINFO "(?:[" UNRESERVED SUB_DELIMS ":]|" PERCENT ")*"
#define REG_NAME "(?:[" UNRESERVED SUB_DELIMS "]|" PERCENT ")*"
#define IP_LITERAL "\\[(?:" IPV6 "|[Vv][0-9A-Fa-f]+\\.[" UNRESERVED SUB_DELIMS ":]+)\\]"
#define AUTHORITY "(?:" USERINFO "@)?(?:" IP_LITERAL "|" REG_NAME ")(?::\\d*)?"
#define ABEMPTY "(?:/" PCHAR "*)*"
#define ABSOLUTE "/(?:" PCHAR "+(?:/" PCHAR "*)*)?"
#define QUERY "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define URI                                                                                        \
    "[A-Za-z][0-9A-Za-z+.\\-]*:(?://" AUTHORITY ABEMPTY "|" ABSOLUTE "|" PCHAR "+(?:/" PCHAR       \
    "*)*|)" QUERY
#define RELATIVE                                                                                   \
    "(?://" AUTHORITY ABEMPTY "|" ABSOLUTE "|" PCHAR_NO_COLON "+(?:/" PCHAR "*)*|)" QUERY

/* RFC 6901, and its relative form */
#define POINTER "(?:/(?:[^/~]|~[01])*)*"

static const struct {
    const char *name;
    enum gram_format format;
    uint32_t max;
    const char *regex, *leap_regex; /* the latter: with leap seconds, if it differs */
} formats[] = {
    {"date-time", GRAM_FORMAT_REGEX, 0, DATE "[Tt]" TIME, DATE "[Tt]" LEAP_TIME},
    {"time", GRAM_FORMAT_REGEX, 0, TIME, LEAP_TIME},
    {"date", GRAM_FORMAT_REGEX, 0, DATE, NULL},
    {"duration", GRAM_FORMAT_REGEX, 0, DURATION, NULL},
    {"email", GRAM_FORMAT_REGEX, 0, EMAIL, NULL},
    {"hostname", GRAM_FORMAT_REGEX, 253, HOSTNAME, NULL},
    {"ipv4", GRAM_FORMAT_REGEX, 0, IPV4, NULL},
    {"ipv6", GRAM_FORMAT_REGEX, 0, IPV6, NULL},
    {"uuid", GRAM_FORMAT_REGEX, 0,
     "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}", NULL},
    {"uri", GRAM_FORMAT_REGEX, 0, URI, NULL},
    {"uri-reference", GRAM_FORMAT_REGEX, 0, URI "|" RELATIVE, NULL},
    {"json-pointer", GRAM_FORMAT_REGEX, 0, POINTER, NULL},
    {"relative-json-pointer", GRAM_FORMAT_REGEX, 0, "(?:0|[1-9]\\d*)(?:#|" POINTER ")", NULL},
    {"int32", GRAM_FORMAT_INTEGER, 0, NULL, NULL},
    {"int64", GRAM_FORMAT_INTEGER, 0, NULL, NULL},
};

static int find(const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
        if (strlen(formats[i].name) == len && memcmp(formats[i].name, name, len) == 0)
            return (int)i;
    return -1;
}

enum gram_format gram_format_find(const char *name, size_t len)
{
    int i = find(name, len);
    return i < 0 ? GRAM_FORMAT_NONE : formats[i].format;
}

const char *gram_format_regex(const char *name, size_t len, bool leap_seconds, uint32_t *ret_max)
{
    int i = find(name, len);
    if (i < 0) return NULL;
    *ret_max = formats[i].max;
    return leap_seconds && formats[i].leap_regex ? formats[i].leap_regex : formats[i].regex;
}

void gram_format_bounds(const char *name, size_t len, const char **low, const char **high)
{
    bool small = len == 5 && memcmp(name, "int32", 5) == 0;
    *low = small ? "-2147483648" : "-9223372036854775808";
    *high = small ? "2147483647" : "9223372036854775807";
}
