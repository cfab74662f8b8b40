; 1: partial
define internal void @body(i64 %n0, ptr noalias %p0, ptr noalias %p1, i64 %s0_0, i64 %s1_0) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s2 = alloca float, i64 1
  store float 0x8000000000000000, ptr %s1
  store float 0x8000000000000000, ptr %s2
  %v4 = icmp slt i64 0, %n0
  br i1 %v4, label %body3, label %done3
body3:
  %i3 = phi i64 [ 0, %entry ], [ %v19, %done7 ]
  store float 0x8000000000000000, ptr %s2
  %v5 = add nsw i64 %i3, 256
  %v6 = call i64 @llvm.smin.i64(i64 %v5, i64 %n0)
  %v8 = icmp slt i64 %i3, %v6
  br i1 %v8, label %body7, label %done7
body7:
  %i7 = phi i64 [ %i3, %body3 ], [ %v14, %body7 ]
  %v9 = getelementptr inbounds float, ptr %p0, i64 %i7
  %v10 = load float, ptr %v9, align 4
  %v11 = fmul float %v10, %v10
  %v12 = load float, ptr %s2
  %v13 = fadd reassoc float %v12, %v11
  store float %v13, ptr %s2
  %v14 = add nuw nsw i64 %i7, 1
  %v15 = icmp slt i64 %v14, %v6
  br i1 %v15, label %body7, label %done7, !llvm.loop !0
done7:
  %v16 = load float, ptr %s1
  %v17 = load float, ptr %s2
  %v18 = fadd float %v16, %v17
  store float %v18, ptr %s1
  %v19 = add nuw nsw i64 %i3, 256
  %v20 = icmp slt i64 %v19, %n0
  br i1 %v20, label %body3, label %done3
done3:
  %v21 = load float, ptr %s1
  store float %v21, ptr %p1, align 4
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
  %v6 = getelementptr inbounds i64, ptr %args, i64 3
  %v7 = load i64, ptr %v6, align 8
  %v8 = getelementptr inbounds ptr, ptr %buffers, i64 %v7
  %v9 = load ptr, ptr %v8, align 8
  %v10 = getelementptr inbounds i64, ptr %args, i64 4
  %v11 = load i64, ptr %v10, align 8
  %v12 = getelementptr i8, ptr %v9, i64 %v11
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
  %v25 = icmp slt i64 %lo, %hi
  br i1 %v25, label %body24, label %done24
body24:
  %i24 = phi i64 [ %lo, %entry ], [ %v38, %body24 ]
  %v26 = udiv i64 %i24, %v3
  %v27 = mul nsw i64 %v26, %v3
  %v28 = sub nsw i64 %i24, %v27
  %v29 = mul nsw i64 %v28, %v5
  %v30 = sub nsw i64 %v1, %v29
  %v31 = call i64 @llvm.smin.i64(i64 %v5, i64 %v30)
  %v32 = mul nsw i64 %v29, %v14
  %v33 = getelementptr i8, ptr %v12, i64 %v32
  %v34 = mul nsw i64 %v29, %v23
  %v35 = getelementptr i8, ptr %v21, i64 %v34
  %v36 = mul nsw i64 %i24, 4
  %v37 = getelementptr i8, ptr %v21, i64 %v36
  call void @body(i64 %v31, ptr %v33, ptr %v37, i64 %v14, i64 %v23)
  %v38 = add nuw nsw i64 %i24, 1
  %v39 = icmp slt i64 %v38, %hi
  br i1 %v39, label %body24, label %done24
done24:
  ret void
}

; 2: row
define internal void @body(i64 %n0, ptr noalias %p0, ptr noalias %p1, i64 %s0_0, i64 %s1_0) nounwind noinline {
entry:
  %s1 = alloca float, i64 1
  %s2 = alloca float, i64 1
  store float 0x8000000000000000, ptr %s1
  store float 0x8000000000000000, ptr %s2
  %v4 = icmp slt i64 0, %n0
  br i1 %v4, label %body3, label %done3
body3:
  %i3 = phi i64 [ 0, %entry ], [ %v18, %done7 ]
  store float 0x8000000000000000, ptr %s2
  %v5 = add nsw i64 %i3, 256
  %v6 = call i64 @llvm.smin.i64(i64 %v5, i64 %n0)
  %v8 = icmp slt i64 %i3, %v6
  br i1 %v8, label %body7, label %done7
body7:
  %i7 = phi i64 [ %i3, %body3 ], [ %v13, %body7 ]
  %v9 = getelementptr inbounds float, ptr %p0, i64 %i7
  %v10 = load float, ptr %v9, align 4
  %v11 = load float, ptr %s2
  %v12 = fadd reassoc float %v11, %v10
  store float %v12, ptr %s2
  %v13 = add nuw nsw i64 %i7, 1
  %v14 = icmp slt i64 %v13, %v6
  br i1 %v14, label %body7, label %done7, !llvm.loop !0
done7:
  %v15 = load float, ptr %s1
  %v16 = load float, ptr %s2
  %v17 = fadd float %v15, %v16
  store float %v17, ptr %s1
  %v18 = add nuw nsw i64 %i3, 256
  %v19 = icmp slt i64 %v18, %n0
  br i1 %v19, label %body3, label %done3
done3:
  %v20 = load float, ptr %s1
  store float %v20, ptr %p1, align 4
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
  %v4 = getelementptr inbounds ptr, ptr %buffers, i64 %v3
  %v5 = load ptr, ptr %v4, align 8
  %v6 = getelementptr inbounds i64, ptr %args, i64 2
  %v7 = load i64, ptr %v6, align 8
  %v8 = getelementptr i8, ptr %v5, i64 %v7
  %v9 = getelementptr inbounds i64, ptr %args, i64 3
  %v10 = load i64, ptr %v9, align 8
  %v11 = getelementptr inbounds i64, ptr %args, i64 4
  %v12 = load i64, ptr %v11, align 8
  %v13 = getelementptr inbounds ptr, ptr %buffers, i64 %v12
  %v14 = load ptr, ptr %v13, align 8
  %v15 = getelementptr inbounds i64, ptr %args, i64 5
  %v16 = load i64, ptr %v15, align 8
  %v17 = getelementptr i8, ptr %v14, i64 %v16
  %v18 = getelementptr inbounds i64, ptr %args, i64 6
  %v19 = load i64, ptr %v18, align 8
  %v21 = icmp slt i64 %lo, %hi
  br i1 %v21, label %body20, label %done20
body20:
  %i20 = phi i64 [ %lo, %entry ], [ %v22, %body20 ]
  call void @body(i64 %v1, ptr %v8, ptr %v17, i64 %v10, i64 %v19)
  %v22 = add nuw nsw i64 %i20, 1
  %v23 = icmp slt i64 %v22, %hi
  br i1 %v23, label %body20, label %done20
done20:
  ret void
}
