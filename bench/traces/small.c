/* A small real source for the compiler's trace: an open-addressing hash table and a sort, without includes. */
typedef unsigned long word;

struct entry {
    word key, value;
};

struct table {
    struct entry *entries;
    word mask, used;
};

void *calloc(word, word);
void free(void *);

static word mix(word x)
{
    x ^= x >> 31;
    x *= 0x9E3779B97F4A7C15ul;
    return x ^ x >> 29;
}

int table_put(struct table *t, word key, word value);

static int grow(struct table *t)
{
    struct table wider = {calloc(2 * t->mask + 2, sizeof *wider.entries), 2 * t->mask + 1, 0};
    if (!wider.entries)
        return -1;
    for (word i = 0; i <= t->mask; i++)
        if (t->entries[i].key)
            table_put(&wider, t->entries[i].key, t->entries[i].value);
    free(t->entries);
    *t = wider;
    return 0;
}

int table_put(struct table *t, word key, word value)
{
    if (t->used * 4 >= t->mask * 3 && grow(t))
        return -1;
    word at = mix(key) & t->mask;
    while (t->entries[at].key && t->entries[at].key != key)
        at = (at + 1) & t->mask;
    t->used += !t->entries[at].key;
    t->entries[at] = (struct entry){key, value};
    return 0;
}

void sort(struct entry *entries, long count)
{
    while (count > 1) {
        word pivot = entries[count / 2].key;
        long low = 0, high = count - 1;
        while (low <= high) {
            while (entries[low].key < pivot)
                low++;
            while (entries[high].key > pivot)
                high--;
            if (low <= high) {
                struct entry swapped = entries[low];
                entries[low++] = entries[high];
                entries[high--] = swapped;
            }
        }
        sort(entries, high + 1);
        entries += low;
        count -= low;
    }
}
