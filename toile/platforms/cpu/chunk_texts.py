"""How a thread runs a chunk of a parallel region, as LLVM text.

`@run_chunk` runs one chunk, `@serial_region` all chunks of a region on the calling thread; the
thread pool (`pool`) is built on both.
"""

# A chunk is a record of four words: function, arguments, lo, hi. Without a function, it is a range
# of blocks of a chain (see runner.chain). The links run on each block with their own table of
# pointers: those of the call and, for arrays without a buffer, pointers to the stack, from which
# the bytes of all earlier blocks are subtracted.
TEXT = """
%record = type { ptr, ptr, i64, i64 }
%link = type { ptr, ptr, i64, i64 }
%slot = type { i64, i64, i64 }

define internal void @run_chain(ptr %chain, i64 %lo, i64 %hi, ptr %buffers) nounwind noinline {
entry:
  %slots.at = getelementptr i64, ptr %chain, i64 1
  %bytes.at = getelementptr i64, ptr %chain, i64 2
  %links.at = getelementptr i64, ptr %chain, i64 3
  %links = load i64, ptr %chain
  %slots = load i64, ptr %slots.at
  %bytes = load i64, ptr %bytes.at
  %first.slot = getelementptr %link, ptr %links.at, i64 %links
  %table = alloca ptr, i64 %slots
  %room = alloca i8, i64 %bytes, align 64
  br label %blocks
blocks:
  %block = phi i64 [ %lo, %entry ], [ %block.next, %linked ]
  %more.blocks = icmp slt i64 %block, %hi
  br i1 %more.blocks, label %place, label %done
place:
  %i = phi i64 [ 0, %blocks ], [ %i.next, %placed ]
  %more.slots = icmp slt i64 %i, %slots
  br i1 %more.slots, label %slot, label %link
slot:
  %slot.at = getelementptr %slot, ptr %first.slot, i64 %i
  %start.at = getelementptr %slot, ptr %slot.at, i64 0, i32 1
  %size.at = getelementptr %slot, ptr %slot.at, i64 0, i32 2
  %number = load i64, ptr %slot.at
  %start = load i64, ptr %start.at
  %size = load i64, ptr %size.at
  %own = icmp slt i64 %number, 0
  br i1 %own, label %own.slot, label %given.slot
own.slot:
  %before = mul i64 %block, %size
  %shift = sub i64 %start, %before
  %here = getelementptr i8, ptr %room, i64 %shift
  br label %placed
given.slot:
  %given.at = getelementptr ptr, ptr %buffers, i64 %number
  %given = load ptr, ptr %given.at
  br label %placed
placed:
  %pointer = phi ptr [ %here, %own.slot ], [ %given, %given.slot ]
  %table.at = getelementptr ptr, ptr %table, i64 %i
  store ptr %pointer, ptr %table.at
  %i.next = add i64 %i, 1
  br label %place
link:
  %j = phi i64 [ 0, %place ], [ %j.next, %ran ]
  %more.links = icmp slt i64 %j, %links
  br i1 %more.links, label %run, label %linked
run:
  %link.at = getelementptr %link, ptr %links.at, i64 %j
  %args.at = getelementptr %link, ptr %link.at, i64 0, i32 1
  %units.at = getelementptr %link, ptr %link.at, i64 0, i32 2
  %extent.at = getelementptr %link, ptr %link.at, i64 0, i32 3
  %fn = load ptr, ptr %link.at
  %args = load ptr, ptr %args.at
  %units = load i64, ptr %units.at
  %extent = load i64, ptr %extent.at
  %from = mul i64 %block, %units
  %full = add i64 %from, %units
  %to = call i64 @llvm.smin.i64(i64 %full, i64 %extent)
  call void %fn(i64 %from, i64 %to, ptr %args, ptr %table)
  br label %ran
ran:
  %j.next = add i64 %j, 1
  br label %link
linked:
  %block.next = add i64 %block, 1
  br label %blocks
done:
  ret void
}

define internal void @run_chunk(ptr %record, ptr %buffers) nounwind {
entry:
  %args.at = getelementptr %record, ptr %record, i64 0, i32 1
  %lo.at = getelementptr %record, ptr %record, i64 0, i32 2
  %hi.at = getelementptr %record, ptr %record, i64 0, i32 3
  %fn = load ptr, ptr %record
  %args = load ptr, ptr %args.at
  %lo = load i64, ptr %lo.at
  %hi = load i64, ptr %hi.at
  %single = icmp ne ptr %fn, null
  br i1 %single, label %call, label %chain
call:
  call void %fn(i64 %lo, i64 %hi, ptr %args, ptr %buffers)
  ret void
chain:
  call void @run_chain(ptr %args, i64 %lo, i64 %hi, ptr %buffers)
  ret void
}

define internal i64 @serial_region(ptr %records, i64 %chunks, ptr %buffers, ptr %state) nounwind {
entry:
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %chunks
  br i1 %more, label %body, label %done
body:
  %record = getelementptr %record, ptr %records, i64 %i
  call void @run_chunk(ptr %record, ptr %buffers)
  %next = add i64 %i, 1
  %code = call i64 @tick(ptr %state)
  %stop = icmp ne i64 %code, 0
  br i1 %stop, label %stopped, label %test
stopped:
  ret i64 1
done:
  ret i64 0
}
"""
