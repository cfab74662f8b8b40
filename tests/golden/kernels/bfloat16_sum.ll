; 1: row
define internal void @body(i64 %n1, ptr noalias %p0, ptr noalias %p1, i64 %s0_1, i64 %s1_1) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s2 = alloca float, i64 1
  store float 0x8000000000000000, ptr %s1
  store float 0x8000000000000000, ptr %s2
  %v4 = icmp slt i64 0, %n1
  br i1 %v4, label %body3, label %done3
body3:
  %i3 = phi i64 [ 0, %entry ], [ %v21, %done7 ]
  store float 0x8000000000000000, ptr %s2
  %v5 = add nsw i64 %i3, 256
  %v6 = call i64 @llvm.smin.i64(i64 %v5, i64 %n1)
  %v8 = icmp slt i64 %i3, %v6
  br i1 %v8, label %body7, label %done7
body7:
  %i7 = phi i64 [ %i3, %body3 ], [ %v16, %body7 ]
  %v9 = getelementptr inbounds i16, ptr %p0, i64 %i7
  %v10 = load i16, ptr %v9, align 2
  %v11 = zext i16 %v10 to i32
  %v12 = shl i32 %v11, 16
  %v13 = bitcast i32 %v12 to float
  %v14 = load float, ptr %s2
  %v15 = fadd reassoc float %v14, %v13
  store float %v15, ptr %s2
  %v16 = add nuw nsw i64 %i7, 1
  %v17 = icmp slt i64 %v16, %v6
  br i1 %v17, label %body7, label %done7, !llvm.loop !0
done7:
  %v18 = load float, ptr %s1
  %v19 = load float, ptr %s2
  %v20 = fadd float %v18, %v19
  store float %v20, ptr %s1
  %v21 = add nuw nsw i64 %i3, 256
  %v22 = icmp slt i64 %v21, %n1
  br i1 %v22, label %body3, label %done3
done3:
  %v23 = load float, ptr %s1
  %v24 = bitcast float %v23 to i32
  %v25 = lshr i32 %v24, 16
  %v26 = and i32 %v25, 1
  %v27 = add i32 %v24, 32767
  %v28 = add i32 %v27, %v26
  %v29 = or i32 %v24, 4194304
  %v30 = fcmp une float %v23, %v23
  %v31 = select i1 %v30, i32 %v29, i32 %v28
  %v32 = and i32 %v31, 4294901760
  %v33 = bitcast i32 %v32 to float
  %v34 = bitcast float %v33 to i32
  %v35 = lshr i32 %v34, 16
  %v36 = and i32 %v35, 1
  %v37 = add i32 %v34, 32767
  %v38 = add i32 %v37, %v36
  %v39 = or i32 %v34, 4194304
  %v40 = fcmp une float %v33, %v33
  %v41 = select i1 %v40, i32 %v39, i32 %v38
  %v42 = and i32 %v41, 4294901760
  %v43 = lshr i32 %v42, 16
  %v44 = trunc i32 %v43 to i16
  store i16 %v44, ptr %p1, align 2
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
