/* list.h - doubly linked lists: members called `next` and `prev`, a pointer to the first one. */
#ifndef PL_LIST_H
#define PL_LIST_H

/* x becomes the first. */
#define list_add(first, x) \
    do { \
        (x)->prev = NULL; \
        (x)->next = *(first); \
        if ((x)->next) (x)->next->prev = (x); \
        *(first) = (x); \
    } while (0)

#define list_remove(first, x) \
    do { \
        if ((x)->prev) (x)->prev->next = (x)->next; \
        else *(first) = (x)->next; \
        if ((x)->next) (x)->next->prev = (x)->prev; \
    } while (0)

#endif
