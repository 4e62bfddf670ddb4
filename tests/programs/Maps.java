import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** Builds a large map of long arrays, checks and rewrites it in order, sorts numbers, with garbage for the collector; prints digests. */
public final class Maps {
    private static final int LONGS = 256;

    private static long mix(long x) {
        x += 0x9e3779b97f4a7c15L;
        x = (x ^ (x >>> 30)) * 0xbf58476d1ce4e5b9L;
        x = (x ^ (x >>> 27)) * 0x94d049bb133111ebL;
        return x ^ (x >>> 31);
    }

    private static long[] block(long key, long version) {
        long[] words = new long[LONGS];
        for (int i = 0; i < LONGS; i++) words[i] = mix(key ^ version << 40) + i * 0x9e3779b97f4a7c15L;
        return words;
    }

    private static void check(Map<Long, long[]> map, int version) {
        int i = 0;
        long folded = 17;
        for (Map.Entry<Long, long[]> entry : map.entrySet()) {
            boolean rewritten = version > 0 && i % 3 == 0;
            if (!Arrays.equals(entry.getValue(), block(entry.getKey(), rewritten ? version : 0))) throw new AssertionError("wrong value at " + i);
            folded = mix(folded ^ Arrays.hashCode(entry.getValue()));
            i++;
        }
        System.out.println("version " + version + " " + map.size() + " " + Long.toHexString(folded));
    }

    public static void main(String[] arguments) {
        int count = Integer.parseInt(arguments[0]);
        Map<Long, long[]> map = new LinkedHashMap<>();
        for (int i = 0; i < count; i++) {
            long key = mix(i);
            map.put(key, block(key, 0));
        }
        check(map, 0);
        int i = 0;
        for (Map.Entry<Long, long[]> entry : map.entrySet()) if (i++ % 3 == 0) entry.setValue(block(entry.getKey(), 1));
        check(map, 1);
        long[] keys = new long[8 * count];
        for (i = 0; i < keys.length; i++) keys[i] = mix(i * 31L);
        Arrays.sort(keys);
        long folded = 17;
        for (long key : keys) folded = mix(folded ^ key);
        System.out.println("sorted " + keys.length + " " + Long.toHexString(folded));
        for (i = 0; i < count; i += 10) if (map.remove(mix(i)) == null) throw new AssertionError("no value at " + i);
        System.out.println("left " + map.size());
    }
}
