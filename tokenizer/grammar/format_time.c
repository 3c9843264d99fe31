/* SPDX-License-Identifier: MIT */
/*
 * date-time and time of RFC 3339, character by character. The state is the place in
 * "YYYY-MM-DDThh:mm:ss" and after it, with the numbers read so far.
 *
 * Second 60 is a leap second, which comes at 23:59 UTC. Whatever the local time, there is an offset
 * of either sign that makes it that, and once the sign is there the offset's digits follow.
 */
#include "tokenizer/grammar/format.h"

enum place {
    YEAR1,
    YEAR2,
    YEAR3,
    YEAR4,
    DASH1,
    MONTH1,
    MONTH2,
    DASH2,
    DAY1,
    DAY2,
    T,
    HOUR1,
    HOUR2,
    COLON1,
    MINUTE1,
    MINUTE2,
    COLON2,
    SECOND1,
    SECOND2,
    BEHIND, /* the seconds: a point or an offset */
    FRACTION1,
    FRACTION,
    OFFSET1,
    OFFSET2,
    COLON3,
    OFFSET3,
    OFFSET4,
    DONE,
};

struct clock {
    unsigned place, year, month, day, hour, minute, second, offset_hour, offset_minute;
    bool negative; /* offset */
};

static struct clock unpack(unsigned f, uint64_t s)
{
    struct clock c = {.place = s & 31,
                      .year = s >> 5 & 0x3FFF,
                      .month = s >> 19 & 15,
                      .day = s >> 23 & 63,
                      .hour = s >> 29 & 31,
                      .minute = s >> 34 & 63,
                      .second = s >> 40 & 63,
                      .offset_hour = s >> 46 & 31,
                      .offset_minute = s >> 51 & 63,
                      .negative = s >> 57 & 1};
    if ((f & ~GRAM_FORMAT_NO_LEAP) == GRAM_FORMAT_TIME && s == 0) c.place = HOUR1;
    return c;
}

static uint64_t pack(const struct clock *c)
{
    return c->place | (uint64_t)c->year << 5 | (uint64_t)c->month << 19 | (uint64_t)c->day << 23 |
           (uint64_t)c->hour << 29 | (uint64_t)c->minute << 34 | (uint64_t)c->second << 40 |
           (uint64_t)c->offset_hour << 46 | (uint64_t)c->offset_minute << 51 |
           (uint64_t)c->negative << 57;
}

static unsigned days_of(unsigned year, unsigned month)
{
    static const uint8_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && leap);
}

/* Minutes of the offset that makes a leap second of the local time, for its sign. */
static unsigned leap_offset(const struct clock *c)
{
    unsigned local = c->hour * 60 + c->minute, utc = 23 * 60 + 59;
    return c->negative ? (utc + 1440 - local) % 1440 : (local + 1440 - utc) % 1440;
}

/*
 * The next digit of a number of two, of which the first was read into *n, if it may be at most max.
 */
static bool second_digit(unsigned *n, unsigned digit, unsigned min, unsigned max)
{
    *n = *n * 10 + digit;
    return *n >= min && *n <= max;
}

static bool first_digit(unsigned *n, unsigned digit, unsigned max)
{
    *n = digit;
    return digit <= max;
}

static bool date_digit(struct clock *c, unsigned d)
{
    switch (c->place) {
    case YEAR1:
    case YEAR2:
    case YEAR3: c->year = c->year * 10 + d; return true;
    case YEAR4: c->year = c->year * 10 + d; return c->year > 0;
    case MONTH1: return first_digit(&c->month, d, 1);
    case MONTH2: return second_digit(&c->month, d, 1, 12);
    case DAY1: return first_digit(&c->day, d, c->month == 2 ? 2 : 3);
    default: return second_digit(&c->day, d, 1, days_of(c->year, c->month));
    }
}

static bool offset_digit(struct clock *c, unsigned d)
{
    unsigned leap = leap_offset(c);
    bool fixed = c->second == 60;
    switch (c->place) {
    case OFFSET1: return first_digit(&c->offset_hour, d, 2) && (!fixed || d == leap / 600);
    case OFFSET2:
        return second_digit(&c->offset_hour, d, 0, 23) && (!fixed || c->offset_hour == leap / 60);
    case OFFSET3: return first_digit(&c->offset_minute, d, 5) && (!fixed || d == leap % 60 / 10);
    default:
        return second_digit(&c->offset_minute, d, 0, 59) &&
               (!fixed || c->offset_minute == leap % 60);
    }
}

static bool time_digit(struct clock *c, unsigned d)
{
    switch (c->place) {
    case HOUR1: return first_digit(&c->hour, d, 2);
    case HOUR2: return second_digit(&c->hour, d, 0, 23);
    case MINUTE1: return first_digit(&c->minute, d, 5);
    case MINUTE2: return second_digit(&c->minute, d, 0, 59);
    case SECOND1: return first_digit(&c->second, d, 6);
    default: return second_digit(&c->second, d, 0, 60);
    }
}

static bool digit(struct clock *c, unsigned d)
{
    static const uint8_t separators[] = {DASH1, DASH2, T, COLON1, COLON2, BEHIND, COLON3, DONE};
    for (unsigned i = 0; i < sizeof(separators); i++)
        if (c->place == separators[i]) return false;
    if (c->place == FRACTION1 || c->place == FRACTION) {
        c->place = FRACTION;
        return true;
    }
    bool fits = c->place < T        ? date_digit(c, d)
                : c->place < BEHIND ? time_digit(c, d)
                                    : offset_digit(c, d);
    c->place++;
    return fits;
}

static bool separator(struct clock *c, uint8_t byte)
{
    bool ends = c->place == BEHIND || c->place == FRACTION;
    switch (byte) {
    case '-':
        if (c->place == DASH1 || c->place == DASH2) break;
        c->negative = true;
        c->place = OFFSET1;
        return ends;
    case '+': c->place = OFFSET1; return ends;
    case 'T':
    case 't':
        if (c->place != T) return false;
        break;
    case ':':
        if (c->place != COLON1 && c->place != COLON2 && c->place != COLON3) return false;
        break;
    case '.':
        if (c->place != BEHIND) return false;
        break;
    case 'Z':
    case 'z': c->place = DONE; return ends && (c->second != 60 || leap_offset(c) == 0);
    default: return false;
    }
    c->place++;
    return true;
}

uint64_t gram_format_step(unsigned f, uint64_t state, uint8_t byte)
{
    struct clock c = unpack(f, state);
    if (f & GRAM_FORMAT_NO_LEAP && c.place == SECOND1 && byte == '6') return GRAM_FORMAT_DEAD;
    bool fits = byte >= '0' && byte <= '9' ? digit(&c, byte - '0') : separator(&c, byte);
    return fits ? pack(&c) : GRAM_FORMAT_DEAD;
}

bool gram_format_complete(uint64_t state)
{
    return (state & 31) == DONE;
}

uint32_t gram_format_rest(unsigned f, uint64_t state)
{
    struct clock c = unpack(f, state);
    uint32_t offset = c.second == 60 && leap_offset(&c) ? DONE - BEHIND - 2 : 1;
    if (c.place >= OFFSET1) return DONE - c.place;
    if (c.place >= BEHIND) return offset + (c.place == FRACTION1);
    return BEHIND - c.place + 1;
}
