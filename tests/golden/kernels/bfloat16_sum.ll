; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, i64 %s0_1, i64 %s1_1) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  store float 0x8000000000000000, ptr %s1
  %v3 = icmp slt i64 0, %n1
  br i1 %v3, label %body2, label %done2
body2:
  %i2 = phi i64 [ 0, %entry ], [ %v11, %body2 ]
  %v4 = getelementptr inbounds i16, ptr %p0, i64 %i2
  %v5 = load i16, ptr %v4, align 2
  %v6 = zext i16 %v5 to i32
  %v7 = shl i32 %v6, 16
  %v8 = bitcast i32 %v7 to float
  %v9 = load float, ptr %s1
  %v10 = fadd reassoc float %v9, %v8
  store float %v10, ptr %s1
  %v11 = add nuw nsw i64 %i2, 1
  %v12 = icmp slt i64 %v11, %n1
  br i1 %v12, label %body2, label %done2, !llvm.loop !0
done2:
  %v13 = load float, ptr %s1
  %v14 = bitcast float %v13 to i32
  %v15 = lshr i32 %v14, 16
  %v16 = and i32 %v15, 1
  %v17 = add i32 %v14, 32767
  %v18 = add i32 %v17, %v16
  %v19 = or i32 %v14, 4194304
  %v20 = fcmp une float %v13, %v13
  %v21 = select i1 %v20, i32 %v19, i32 %v18
  %v22 = and i32 %v21, 4294901760
  %v23 = bitcast i32 %v22 to float
  %v24 = bitcast float %v23 to i32
  %v25 = lshr i32 %v24, 16
  %v26 = and i32 %v25, 1
  %v27 = add i32 %v24, 32767
  %v28 = add i32 %v27, %v26
  %v29 = or i32 %v24, 4194304
  %v30 = fcmp une float %v23, %v23
  %v31 = select i1 %v30, i32 %v29, i32 %v28
  %v32 = and i32 %v31, 4294901760
  %v33 = lshr i32 %v32, 16
  %v34 = trunc i32 %v33 to i16
  store i16 %v34, ptr %p1, align 2
  ret void
}
!0 = distinct !{!0, !1, !2}
!1 = !{!"llvm.loop.vectorize.enable", i1 true}
!2 = !{!"llvm.loop.interleave.count", i32 4}
define void @kernel(i64 %lo, i64 %hi, ptr noalias %args, ptr noalias %buffers) nounwind {
entry:
  %v1 = load i64, ptr %args, align 8
  %v2 = getelementptr inbounds i64, ptr %args, i64 1
  %v3 = load i64, ptr %v2, align 8
  %v4 = getelementptr inbounds i64, ptr %args, i64 2
  %v5 = load i64, ptr %v4, align 8
  %v6 = getelementptr inbounds ptr, ptr %buffers, i64 %v5
  %v7 = load ptr, ptr %v6, align 8
  %v8 = getelementptr inbounds i64, ptr %args, i64 3
  %v9 = load i64, ptr %v8, align 8
  %v10 = getelementptr i8, ptr %v7, i64 %v9
  %v11 = getelementptr inbounds i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11, align 8
  %v13 = getelementptr inbounds i64, ptr %args, i64 5
  %v14 = load i64, ptr %v13, align 8
  %v15 = getelementptr inbounds i64, ptr %args, i64 6
  %v16 = load i64, ptr %v15, align 8
  %v17 = getelementptr inbounds ptr, ptr %buffers, i64 %v16
  %v18 = load ptr, ptr %v17, align 8
  %v19 = getelementptr inbounds i64, ptr %args, i64 7
  %v20 = load i64, ptr %v19, align 8
  %v21 = getelementptr i8, ptr %v18, i64 %v20
  %v22 = getelementptr inbounds i64, ptr %args, i64 8
  %v23 = load i64, ptr %v22, align 8
  %v24 = getelementptr inbounds i64, ptr %args, i64 9
  %v25 = load i64, ptr %v24, align 8
  %v27 = icmp slt i64 %lo, %hi
  br i1 %v27, label %body26, label %done26
body26:
  %i26 = phi i64 [ %lo, %entry ], [ %v32, %body26 ]
  %v28 = mul nsw i64 %i26, %v12
  %v29 = getelementptr i8, ptr %v10, i64 %v28
  %v30 = mul nsw i64 %i26, %v23
  %v31 = getelementptr i8, ptr %v21, i64 %v30
  call void @body(i64 %v3, ptr %v29, ptr %v31, i64 %v14, i64 %v25)
  %v32 = add nuw nsw i64 %i26, 1
  %v33 = icmp slt i64 %v32, %hi
  br i1 %v33, label %body26, label %done26
done26:
  ret void
}
