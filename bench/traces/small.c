/* A small real source for the compiler's trace: a sort, without includes. (The start alone is 18 million references.) */
typedef unsigned long word;

struct entry {
    word key, value;
};

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
